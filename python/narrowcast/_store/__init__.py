"""Parts of `narrowcast.store`."""
