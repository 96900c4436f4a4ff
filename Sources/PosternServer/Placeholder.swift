enum PlaceholderPosternServer {}
