"""What sources and sinks need of Kafka. confluent-kafka is imported only where it is used."""
