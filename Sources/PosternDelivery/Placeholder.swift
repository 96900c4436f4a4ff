enum PlaceholderPosternDelivery {}
