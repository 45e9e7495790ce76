"""The frame of the papers' experiments: the list, running, validation, plots, the document."""
