"""The analysis of "Semantic Recall for Vector Search", on data that is at hand."""
