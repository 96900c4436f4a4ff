import Testing

@Test func placeholderPosternHTTP() {}
