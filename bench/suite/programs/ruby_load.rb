# The workload "ruby": strings beyond the embedded ones, hashes, arrays and objects with many fields are malloc's. Fixed seed; prints a checksum.
class Record
  attr_reader :id, :name, :tags, :text, :more
  def initialize(id, rng)
    @id, @name, @tags = id, "record-#{rng.rand(1 << 60).to_s(36)}", Array.new(rng.rand(12)) { |i| :"t#{i}" }
    @text = "abc" * rng.rand(90)
    @more = { id: id, a: [@name], b: @text[0, 40] }
  end
end

rng = Random.new(19950221)
sum = 0
kept = {}
140_000.times do |i|
  record = Record.new(i, rng)
  kept[record.name] = record
  kept.shift if kept.size > 20_000
  sum = (sum * 31 + record.text.size + record.tags.size) & 0xffffffff
end
lines = kept.values.map { |r| "#{r.id}\t#{r.name}\t#{r.tags.join(',')}\t#{r.text.upcase}" }
text = lines.join("\n")
words = Hash.new(0)
text.scan(/[a-z]{2,}\d*/) { |word| words[word[0, 3]] += 1 }
text.split("\n").map { |line| line.split("\t") }.sort_by { |row| row[1] }.each { |row| sum = (sum * 33 + row[1].size) & 0xffffffff }
puts [sum, words.size, words.values.sum, text.size].join(" ")
