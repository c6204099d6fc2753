import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a Kafka consumer group, for benchmarks/kafka_groups.py: {@code GroupMember GROUP TOPIC
 * WARM_UP_TOPIC KEY=VALUE...}.
 *
 * It says {@code ready}, joins once there is a line on its standard input, and says {@code owns 0,3,5}
 * whenever its partitions have changed.
 */
public final class GroupMember {
    private static final Duration WAIT = Duration.ofMillis(50);

    public static void main(String[] arguments) throws IOException {
        Properties settings = new Properties();
        for (String one : List.of(arguments).subList(3, arguments.length)) {
            String[] pair = one.split("=", 2);
            settings.setProperty(pair[0], pair[1]);
        }
        // Its classes are loaded, and compiled to some degree, before anything is measured.
        try (KafkaConsumer<byte[], byte[]> alone = member(settings, "alone-" + ProcessHandle.current().pid())) {
            alone.subscribe(List.of(arguments[2]));
            while (alone.assignment().isEmpty()) {
                alone.poll(WAIT);
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = member(settings, arguments[0])) {
            consumer.partitionsFor(arguments[1]);
            System.out.println("ready");
            if (new BufferedReader(new InputStreamReader(System.in)).readLine() == null) {
                return;
            }
            consumer.subscribe(List.of(arguments[1]));
            Set<TopicPartition> before = Set.of();
            while (true) {
                consumer.poll(WAIT);
                Set<TopicPartition> now = consumer.assignment();
                if (!now.equals(before)) {
                    before = Set.copyOf(now);
                    System.out.println("owns " + numbers(before));
                }
            }
        }
    }

    private static KafkaConsumer<byte[], byte[]> member(Properties settings, String group) {
        Properties own = new Properties();
        own.putAll(settings);
        own.setProperty("group.id", group);
        return new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static String numbers(Set<TopicPartition> partitions) {
        return partitions.stream()
            .map(TopicPartition::partition)
            .collect(Collectors.toCollection(TreeSet::new))
            .stream()
            .map(String::valueOf)
            .collect(Collectors.joining(","));
    }
}
