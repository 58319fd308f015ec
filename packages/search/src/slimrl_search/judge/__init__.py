"""`slimrl judge`: labelled answers, and how far a judge agrees with them."""
