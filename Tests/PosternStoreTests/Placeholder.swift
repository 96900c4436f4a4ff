import Testing

@Test func placeholderPosternStore() {}
