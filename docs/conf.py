"""Sphinx configuration: Markdown pages (MyST), furo theme, warnings are errors in ``make docs``."""

project = "CommInsight"
author = "The CommInsight authors"
copyright = "2026, The CommInsight authors"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "CommInsight"
html_show_sourcelink = False
