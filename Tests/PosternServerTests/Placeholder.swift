import Testing

@Test func placeholderPosternServer() {}
