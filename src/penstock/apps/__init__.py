"""The papers' layouts and applications, with their generators."""
