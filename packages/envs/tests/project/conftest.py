"""Whole runs, which draw nothing."""

from tests.blank_pictures import pictures_are_blank as pictures_are_blank
