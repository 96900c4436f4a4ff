import Testing

@Test func placeholderPosternCompression() {}
