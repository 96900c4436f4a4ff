import Testing

@Test func placeholderPosternUpstreams() {}
