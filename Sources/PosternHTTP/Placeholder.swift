enum PlaceholderPosternHTTP {}
