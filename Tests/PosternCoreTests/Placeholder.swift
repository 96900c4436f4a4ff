import Testing

@Test func placeholderPosternCore() {}
