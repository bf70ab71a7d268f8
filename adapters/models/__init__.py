"""Chat models, embedders and the door that libraries call through."""
