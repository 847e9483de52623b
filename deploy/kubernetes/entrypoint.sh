#!/bin/bash
# What a pod runs: an executor, if Spark has started it as one; else the command that it is given.
set -eu
if [ "${1:-}" != executor ]; then
  exec tini -s -- "$@"
fi
options=()
while IFS='=' read -r name value; do
  [ -n "$value" ] && options+=("$value")
done < <(env | grep '^SPARK_JAVA_OPT_' | sort -t _ -k 4 -n)
exec tini -s -- java "${options[@]}" \
  -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
