import Configuration
enum PlaceholderPosternApp {}
