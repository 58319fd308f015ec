/** A component that is drawn again only if one of these properties is another value. */
import { Component, type ComponentType, type VNode } from "preact";

export function memo<P extends object>(drawn: (props: P) => VNode | null, watched: (keyof P)[]): ComponentType<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: Readonly<P>): boolean {
      return watched.some((name) => next[name] !== (this.props as P)[name]);
    }

    override render(): VNode | null {
      return drawn(this.props as P);
    }
  };
}
