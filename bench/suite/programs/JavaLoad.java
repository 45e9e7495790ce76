import java.nio.ByteBuffer;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * The workload "java": objects live in the machine's own heap, but direct buffers, compression, threads, classes and the compilers are malloc's.
 * Fixed seed; prints a checksum.
 */
public class JavaLoad {
    private static long state = 19950523;

    private static int random(int below) {
        state = state * 6364136223846793005L + 1442695040888963407L;
        return (int) ((state >>> 33) % below);
    }

    public static void main(String[] arguments) throws Exception {
        long sum = 0;
        ByteBuffer[] kept = new ByteBuffer[200];
        for (int i = 0; i < 20000; i++) {
            int at = random(kept.length);
            if (kept[at] != null) sum = sum * 31 + kept[at].get(kept[at].capacity() / 2);
            kept[at] = ByteBuffer.allocateDirect(64 << random(11));
            for (int b = 0; b < kept[at].capacity(); b += 512) kept[at].put(b, (byte) i);
        }
        byte[] text = new byte[40000];
        byte[] packed = new byte[60000], back = new byte[text.length];
        for (int round = 0; round < 250; round++) {
            for (int i = 0; i < text.length; i++) text[i] = (byte) ('a' + random(1 + i % 7));
            Deflater deflater = new Deflater(1);
            deflater.setInput(text);
            deflater.finish();
            int length = deflater.deflate(packed);
            deflater.end();
            Inflater inflater = new Inflater();
            inflater.setInput(packed, 0, length);
            int restored = inflater.inflate(back);
            inflater.end();
            if (restored != text.length || !java.util.Arrays.equals(text, back)) throw new IllegalStateException("compression lost something");
            sum = sum * 33 + restored;
        }
        long[] parts = new long[200];
        for (int i = 0; i < parts.length; i++) {
            final int number = i;
            Thread thread = new Thread(() -> parts[number] = ("thread " + number).hashCode());
            thread.start();
            thread.join();
            sum = sum * 37 + parts[number];
        }
        System.out.println(sum);
    }
}
