"""This package shows runs in a web browser, live, from only their files: `slimrl view RUN`. See docs/viewer.md.

It loads neither PyTorch nor transformers and needs no extra. An index beside the run's files (`index.py`), which
grows with them (`shown.py`), lets it find and sort a hundred thousand rollouts; `api.py` lists the page's requests. The
page itself lies built in `static/`, and its sources in `packages/view/page/` of the repository.
"""
