import Testing

@Test func placeholderPosternJSON() {}
