enum PlaceholderPosternUpstreams {}
