/*
 * umpa_solver.c - a program for table 2 of the paper on user mode page allocation: a solver whose arrays grow by realloc. Linked to no allocator.
 *
 *     umpa_solver UNKNOWNS ROUNDS
 *
 * Heat on a line is solved by Jacobi steps on a grid that is refined ROUNDS times: each time its arrays double, and the values between are filled in.
 * Prints a sum, which no allocator changes.
 */
#include <stdio.h>
#include <stdlib.h>

static double *grown(double *array, size_t count) {
    double *larger = realloc(array, count * sizeof *array);
    if (!larger) {
        fputs("umpa_solver: no memory\n", stderr);
        exit(2);
    }
    return larger;
}

/* From the end on, so that no value is overwritten before it was read. */
static void refine(double *values, size_t count) {
    for (size_t i = count; i-- != 0;) {
        double next = i + 1 < count ? values[i + 1] : 0;
        values[2 * i + 1] = (values[i] + next) / 2;
        values[2 * i] = values[i];
    }
}

int main(int argc, char **argv) {
    size_t count = argc == 3 ? strtoull(argv[1], NULL, 10) : 0, rounds = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    if (count < 4 || !rounds) {
        fputs("usage: umpa_solver UNKNOWNS ROUNDS\n", stderr);
        return 2;
    }
    double *values = grown(NULL, count), *next = grown(NULL, count), sum = 0;
    for (size_t i = 0; i < count; i++) values[i] = (double)(i % 17);
    for (size_t round = 0; round < rounds; round++) {
        values = grown(values, 2 * count);
        next = grown(next, 2 * count);
        refine(values, count);
        count *= 2;
        next[0] = values[0];
        next[count - 1] = values[count - 1];
        for (size_t i = 1; i + 1 < count; i++) next[i] = (values[i - 1] + values[i + 1]) / 2;
        double *kept = values;
        values = next;
        next = kept;
    }
    for (size_t i = 0; i < count; i++) sum += values[i];
    printf("%.6e\n", sum);
    free(values);
    free(next);
    return fflush(stdout) ? 2 : 0;
}
