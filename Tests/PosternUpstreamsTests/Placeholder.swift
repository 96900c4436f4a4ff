import Testing

@Test func placeholderU() {}
