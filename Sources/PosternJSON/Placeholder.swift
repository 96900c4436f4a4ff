enum PlaceholderPosternJSON {}
