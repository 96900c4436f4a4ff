import Testing

@Test func placeholderPosternDelivery() {}
