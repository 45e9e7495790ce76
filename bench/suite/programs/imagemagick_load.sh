#!/bin/sh
# The workload "imagemagick": a few operations in a row, as a thumbnailer does them; writes the file $1. Its pixels must come out the same each time.
set -eu

convert-im6.q16 input.ppm -resize 150% -blur 0x3 -rotate 17 -unsharp 0x1 -resize 800x600! step.ppm
for size in 600 400 300 200 150 100; do
    convert-im6.q16 step.ppm -resize ${size}x${size} -sharpen 0x1 -colorspace Gray -normalize "part$size.ppm"
done
convert-im6.q16 part*.ppm -append "$1"
rm -f step.ppm part*.ppm
