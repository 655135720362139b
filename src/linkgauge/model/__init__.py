"""The model: what is known of a case and its dimensions, of a pattern and of a transport, each said once."""
