/// Nothing to call. See `data.c`.
