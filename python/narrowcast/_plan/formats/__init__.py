"""The formats of other libraries: importers and exporters of plans."""
