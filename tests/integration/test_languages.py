"""perl, php, node and java: programs that check themselves and print what must be the same under every malloc."""

import pytest

BOTH = pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)

PERL = r"""
use strict; use warnings; use threads; use Digest::SHA qw(sha256_hex); use Storable qw(dclone);
$SIG{ALRM} = sub { die "too slow" }; alarm 60;
my %words; my $x = 12345;
for my $i (1 .. 60000) { $x = ($x * 1103515245 + 12345) % 2147483648; push @{ $words{ "k" . $x % 4000 } }, "v$i" x ($x % 7); }
delete @words{ grep { length($words{$_}[0]) % 3 == 0 } sort keys %words };
my $text = join ",", map { "$_=" . join("|", @{ $words{$_} }) } sort keys %words;
$text =~ s/v(\d+)/sprintf "w%x", $1/ge;
my $copy = dclone(\%words); die "copy differs" if join(",", sort keys %$copy) ne join(",", sort keys %words);
my @threads = map { my $n = $_; threads->create(sub { my @a = map { "$n-$_" x 20 } 1 .. 20000; my %h = map { $_ => 1 } @a; return scalar keys %h }) } 1 .. 4;
print join(" ", map { $_->join } @threads), "\n";
my $grown = ""; $grown .= chr(33 + $_ % 90) for 1 .. 400000;
my $pid = fork; if ($pid == 0) { my @z = map { [ 1 .. 10 ] } 1 .. 10000; exit(@z == 10000 ? 0 : 1) } waitpid $pid, 0; print "child $?\n";
print length($text), " ", sha256_hex($text), " ", sha256_hex($grown), "\n";
"""

# Its extensions are loaded with RTLD_DEEPBIND.
PHP = r"""
mt_srand(3); $words = [];
for ($i = 0; $i < 150000; $i++) { $key = 'k' . mt_rand(0, 9000); $words[$key] = ($words[$key] ?? '') . chr(65 + $i % 26); if (strlen($words[$key]) > 40) unset($words[$key]); }
ksort($words); $lists = [];
for ($i = 0; $i < 30000; $i++) { $lists[] = array_fill(0, mt_rand(1, 40), $i); if ($i % 3 == 0) $lists = array_slice($lists, -500); }
$text = json_encode($words); if (json_decode($text, true) !== $words) exit(3);
$text = preg_replace_callback('/([A-F])([A-F])/', fn($m) => $m[2] . strtolower($m[1]), $text);
$text = iconv('UTF-16LE', 'UTF-8', iconv('UTF-8', 'UTF-16LE', $text));
class Node { public $left, $right; function __construct(int $depth) { if ($depth > 0) { $this->left = new Node($depth - 1); $this->right = new Node($depth - 1); } } }
for ($i = 0; $i < 10; $i++) { $tree = new Node(10); $tree->left->right->left = $tree; } unset($tree);
$all = get_loaded_extensions(); sort($all);
echo hash('sha256', $text), ' ', count($words), ' ', gc_collect_cycles() > 0, ' ', implode(',', $all), "\n";
"""

NODE = r"""
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib'), crypto = require('crypto'), fs = require('fs'), { execFileSync } = require('child_process');
const sum = (data) => crypto.createHash('sha256').update(data).digest('hex');
function work(seed) {
  let x = seed; const next = () => (x = (Math.imul(x, 1103515245) + 12345) >>> 0);
  const table = new Map();
  for (let i = 0; i < 60000; i++) table.set('k' + next() % 9000, { i, text: 'v'.repeat(next() % 50), list: [i, i + 1] });
  const json = JSON.stringify([...table.entries()].sort());
  const buffers = []; for (let i = 0; i < 100; i++) buffers.push(Buffer.alloc(next() % 100000, i & 255));
  const packed = zlib.gzipSync(Buffer.concat([Buffer.from(json), ...buffers]));
  const back = zlib.gunzipSync(packed);
  if (!back.subarray(0, Buffer.byteLength(json)).equals(Buffer.from(json))) throw new Error('zlib');
  if (JSON.stringify(JSON.parse(json)) !== json) throw new Error('json');
  return sum(back) + sum(zlib.brotliCompressSync(json.slice(0, 30000)));
}
if (!isMainThread) { parentPort.postMessage([workerData, work(workerData)]); }
else {
  const results = {}; let left = 3;
  for (const seed of [1, 2, 3]) new Worker(__filename, { workerData: seed }).on('message', ([s, r]) => { results[s] = r; })
    .on('error', (e) => { console.error(e); process.exit(3); })
    .on('exit', () => { if (--left === 0) { console.log(results[1], results[2], results[3], work(1) === results[1],
      execFileSync('/bin/echo', ['child']).toString().trim()); } });
}
"""

JAVA = r"""
import java.nio.*; import java.util.*; import java.util.concurrent.*; import java.util.zip.*;
public class Main {
    static long work(int seed) throws Exception {
        Random random = new Random(seed); CRC32 crc = new CRC32();
        Map<Integer, byte[]> map = new HashMap<>();
        for (int i = 0; i < 20000; i++) {
            byte[] bytes = new byte[random.nextInt(2000)]; random.nextBytes(bytes); map.put(random.nextInt(3000), bytes);
        }
        for (Integer key : new TreeSet<>(map.keySet())) crc.update(map.get(key));
        for (int i = 0; i < 12; i++) {                                  // zlib and direct buffers take native memory
            byte[] data = new byte[100000 + i]; for (int k = 0; k < data.length; k++) data[k] = (byte) (random.nextInt(16));
            Deflater deflater = new Deflater(9); deflater.setInput(data); deflater.finish();
            byte[] packed = new byte[200000]; int length = deflater.deflate(packed); deflater.end();
            Inflater inflater = new Inflater(); inflater.setInput(packed, 0, length); byte[] back = new byte[data.length];
            if (inflater.inflate(back) != data.length || !Arrays.equals(back, data)) throw new RuntimeException("zlib"); inflater.end();
            ByteBuffer direct = ByteBuffer.allocateDirect(data.length); direct.put(data); direct.flip(); crc.update(direct);
        }
        return crc.getValue();
    }
    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4); List<Future<Long>> all = new ArrayList<>();
        for (int i = 0; i < 8; i++) { final int seed = i % 4; all.add(pool.submit(() -> work(seed))); }
        StringBuilder line = new StringBuilder(); for (Future<Long> f : all) line.append(f.get()).append(' ');
        pool.shutdown();
        for (int i = 0; i < 500; i++) { Thread t = new Thread(() -> Thread.yield()); t.start(); if (i % 50 == 0) t.join(); }
        System.out.println(line.toString().trim());
    }
}
"""


@BOTH
def test_perl(strata, plain, once):
    assert strata.run(["perl", "-e", PERL]).out == once("perl", lambda: plain.run(["perl", "-e", PERL]).out)


@pytest.mark.strata_only
@BOTH
def test_php(strata, plain, once):
    """With a memory manager of its own on large pieces of ours, and without one."""
    program = ["php", "-r", PHP]
    for env in ({}, {"USE_ZEND_ALLOC": "0"}):
        out = strata.run(program, env=env).text
        assert "PDO" in out and out == once("php", lambda: plain.run(program).text)


@BOTH
def test_node(strata, plain, once, tmp_path):
    script = tmp_path / "main.js"
    script.write_text(NODE)
    out = strata.run(["node", script]).text
    assert out == once("node", lambda: plain.run(["node", script]).text) and out.endswith("true child\n")


def test_java_version(strata):
    assert "version" in strata.run(["java", "-version"]).errors


@BOTH
def test_java(strata, plain, once, tmp_path):
    """The compiler and the program, both multi-threaded, both on strata."""
    (tmp_path / "Main.java").write_text(JAVA)
    strata.run(["javac", "-J-Xmx256m", "-d", tmp_path, tmp_path / "Main.java"])
    program = ["java", "-Xmx256m", "-cp", tmp_path, "Main"]
    out = strata.run(program).text
    numbers = out.split()
    assert len(numbers) == 8 and numbers[:4] == numbers[4:] and out == once("java", lambda: plain.run(program).text)
