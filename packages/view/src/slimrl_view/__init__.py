"""This package shows runs live in a web browser, from only the runs' files: `slimrl view RUN`. See docs/viewer.md.

It loads neither PyTorch nor transformers and needs no extra. An index beside the run's files (`index.py`) makes it fast
to find and sort a hundred thousand rollouts. `shown.py` keeps the index up to date, and `api.py` lists the page's
requests. The built page is in `static/`, and its sources are in `packages/view/page/` of the repository.
"""
