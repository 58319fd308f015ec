/** A hook that keeps the last answer on the screen while the next one is on its way. */
import { useEffect, useState } from "preact/hooks";

export interface Answer<T> {
  value: T | null;
  error: string;
  loading: boolean;
}

/** Ask again whenever `key` changes; an answer that comes after a later question is thrown away. */
export function useAnswer<T>(key: string, ask: () => Promise<T>): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>({ value: null, error: "", loading: true });
  useEffect(() => {
    let current = true;
    setAnswer((last) => ({ ...last, loading: true }));
    ask().then(
      (value) => current && setAnswer({ value, error: "", loading: false }),
      (error: Error) => current && setAnswer({ value: null, error: error.message, loading: false }),
    );
    return () => {
      current = false;
    };
  }, [key]);
  return answer;
}
