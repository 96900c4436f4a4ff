enum PlaceholderKit {}
