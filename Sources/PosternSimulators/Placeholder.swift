enum PlaceholderPosternSimulators {}
