"""The read model: everything there is to see, kept up to date for whoever asks or watches."""
