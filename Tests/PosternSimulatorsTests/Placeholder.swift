import Testing

@Test func placeholderPosternSimulators() {}
