enum PlaceholderPosternTransport {}
