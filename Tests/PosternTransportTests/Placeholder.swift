import Testing

@Test func placeholderPosternTransport() {}
