-- The workload "sqlite": loads orders.csv into a database on file, makes indices and a full-text index, asks, and deletes half.
-- Durability is off: what the disk takes is not the question here.
.bail on
.open --new orders.db
.output /dev/null
PRAGMA journal_mode = MEMORY;
.output
PRAGMA synchronous = OFF;
PRAGMA cache_size = -131072;
PRAGMA temp_store = MEMORY;

CREATE TABLE orders (number INTEGER, customer INTEGER, cents INTEGER, code TEXT, item TEXT);
.mode csv
.import orders.csv orders
.mode list

CREATE UNIQUE INDEX orders_by_number ON orders (number);
CREATE INDEX orders_by_customer ON orders (customer, cents);
CREATE INDEX orders_by_code ON orders (code);
CREATE VIRTUAL TABLE words USING fts5 (item, content = '', detail = none);
INSERT INTO words (rowid, item) SELECT number, item FROM orders;

SELECT 'rows', count(*) FROM orders;
SELECT 'total', sum(cents) FROM orders;
SELECT 'customers', count(*) FROM (SELECT DISTINCT customer FROM orders);
SELECT 'best', customer, sum(cents) AS spent FROM orders GROUP BY customer ORDER BY spent DESC, customer LIMIT 1;
SELECT 'word', count(*) FROM words WHERE words MATCH 'redtea';
DELETE FROM orders WHERE cents < 500000;
SELECT 'kept', count(*), sum(number) FROM orders;
SELECT 'integrity', integrity_check FROM pragma_integrity_check;
