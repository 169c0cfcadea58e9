package meander;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.MemoryManager;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.rdd.ParallelCollectionPartition;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.api.python.PythonSQLUtils;

/**
 * A compiled plan of Spark's that runs again and again.
 *
 * <p>It does so on the calling thread, as a task that belongs to no job, or as a job.
 */
public final class DriverPlan {
    /** Our tasks' numbers begin where Spark's own do not come: memory is accounted for by task. */
    private static final AtomicLong NUMBERS = new AtomicLong(1L << 40);

    private final boolean asJobs;
    private final MemoryManager pool;
    private final RDD batches;
    private final Partition only;
    private final List inputs;
    private final List paths;
    private final String out;

    /** The plan's result as Arrow batches, its inputs with the files that they are read from, and the file it goes to. */
    public DriverPlan(Boolean asJobs, MemoryManager pool, RDD batches, List inputs, List paths, String out) {
        this.asJobs = asJobs.booleanValue();
        this.pool = pool;
        this.batches = batches;
        this.only = batches.partitions()[0];
        this.inputs = inputs;
        this.paths = paths;
        this.out = out;
    }

    /** Runs over the inputs whose bit is set, while the others are empty. */
    public void run(long given) throws Exception {
        fill(given);
        try {
            if (asJobs) {
                write(scala.Predef$.MODULE$.genericWrapArray(batches.collect()).iterator());
            } else {
                runHere();
            }
        } finally {
            fill(0L);
        }
    }

    private void fill(long given) throws Exception {
        for (int i = 0; i < inputs.size(); i++) {
            ParallelCollectionPartition input = (ParallelCollectionPartition) inputs.get(i);
            if ((given >> i & 1L) != 0L) {
                input.values_$eq(PythonSQLUtils.readArrowStreamFromFile((String) paths.get(i)).toSeq());
            } else {
                input.values_$eq(scala.collection.immutable.Nil$.MODULE$);
            }
        }
    }

    private void runHere() throws Exception {
        long number = NUMBERS.getAndIncrement();
        TaskMemoryManager memory = new TaskMemoryManager(pool, number);
        TaskContextImpl context = new TaskContextImpl(
            0, 0, 0, number, 0, 1, memory, new Properties(), null, TaskMetrics.empty(), null,
            scala.collection.immutable.Map$.MODULE$.empty());
        TaskContext$.MODULE$.setTaskContext(context);
        try {
            write(batches.iterator(only, context));
        } finally {
            try {
                context.markTaskCompleted(scala.Option.empty());
            } finally {
                TaskContext$.MODULE$.unset();
                memory.cleanUpAllAllocatedMemory();
            }
        }
    }

    /** Each batch with its length before it. */
    private void write(scala.collection.Iterator found) throws Exception {
        DataOutputStream to = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(out), 1 << 16));
        try {
            while (found.hasNext()) {
                byte[] batch = (byte[]) found.next();
                to.writeInt(batch.length);
                to.write(batch);
            }
        } finally {
            to.close();
        }
    }
}
