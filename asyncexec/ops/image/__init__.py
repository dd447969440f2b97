"""Images: codecs, colours, resizing."""
