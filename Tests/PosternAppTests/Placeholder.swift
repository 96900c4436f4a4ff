import Testing

@Test func placeholderPosternApp() {}
