/* The triad of STREAM, a = b + s*c: the best rate of ten, in MB/s of 10^6 bytes, and whether the result is right. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

int main(int count, char **words) {
    long n = count > 1 ? atol(words[1]) : 10000000, wrong = 0;
    double *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *c = malloc(n * sizeof *c), best = 0;
    if (n < 1 || !a || !b || !c) return fprintf(stderr, "no memory for 3 arrays of %ld numbers\n", n), 1;
#pragma omp parallel for
    for (long i = 0; i < n; i++) a[i] = 0, b[i] = 1, c[i] = 2;
    for (int run = 0; run < 10; run++) {
        double begun = seconds();
#pragma omp parallel for
        for (long i = 0; i < n; i++) a[i] = b[i] + 3 * c[i];
        double rate = 3 * sizeof *a * n / (seconds() - begun) / 1e6;
        if (rate > best) best = rate;
    }
    for (long i = 0; i < n; i++) wrong += a[i] != 7;
    printf("Triad:  %.1f\n%s\n", best, wrong ? "Solution is wrong" : "Solution Validates");
    return wrong != 0;
}
