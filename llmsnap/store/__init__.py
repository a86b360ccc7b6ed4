"""What outlives the proxy: a SQLite file in the state folder, one writer, many readers."""
