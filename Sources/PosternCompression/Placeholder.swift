enum PlaceholderPosternCompression {}
