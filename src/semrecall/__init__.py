"""semrecall: measure what a vector search really loses."""
