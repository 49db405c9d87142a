package secrets_test

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// benignNames are names of parameters and members of public APIs whose values are no secrets,
// although a word such as "token" or "key" is in them. The first ones are from issue reports.
const benignNames = `nextPageToken NextToken continuationToken syncToken cacheKey objectKey sortKey
	idempotencyKey tokenAddress projectKey pageToken cursor tokenCount maxTokens publicKey keyId
	primaryKey partitionKey

	NextContinuationToken ContinuationToken StartingToken PaginationToken ExclusiveStartKey
	LastEvaluatedKey KeyMarker NextKeyMarker UploadIdMarker ClientRequestToken ClientToken
	IdempotencyToken CreationToken taskToken ReceiptHandle SequenceToken uploadSequenceToken
	nextForwardToken nextBackwardToken ShardIterator PartitionKey SortKey HashKey RangeKey KmsKeyId
	KeyArn KeyName KeyPairId KeyFingerprint TagKey ObjectKey s3Key S3ObjectKey CopySourceKey
	KeyPrefix EncryptionKeyArn DimensionKey secretName SecretArn SecretId secretVersion
	token_type tokenEndpoint token_endpoint_auth_method restoreKey restore-key
	nextSyncToken resumeToken resume_token resourceKey startPageToken newStartPageToken changeToken
	deltaToken delta_token skiptoken skipToken $skipToken driveResourceKey next_page_token
	page_token next_token continuation_token x-ms-continuation RowKey NextPartitionKey NextRowKey
	messageKey recordKey shardKey next_cursor start_cursor end_cursor endCursor startCursor
	after_cursor cursorToken cursor_token idempotency_key idempotency-key Idempotency-Key fileKey
	file_key nodeKey componentKey component_key style_key styleKey issueKey issue_key spaceKey
	space_key epicKey boardKey parentKey project_key flagKey environmentKey segmentKey
	token_address tokenId token_id tokenSymbol tokenIn tokenOut tokenMint pubkey public_key
	quoteToken baseToken feeToken contractToken inputToken outputToken tokenUsage token_usage
	stopToken max_tokens prompt_tokens csrfToken csrf_token xsrfToken authorKey authority keyword
	keywords keyframe foreignKey foreign_key lookupKey lookup_key dedupeKey dedup_key groupKey
	group_key translationKey i18nKey hotkey shortcutKey apiVersion accessLevel accessTier
	accessPoint authMethod authProvider apiUrl apiEndpoint credentialId credential_id
	credentialType passwordPolicy passwordResetUrl tokenExpiry tokenExpiresAt queryKey threadKey
	mapKey itemKey index_key image_key imageKey folderKey blobKey contentKey assetKey correlationKey
	routingKey routing_key bindingKey mediaKey documentKey entityKey keyHash key_hash keyVersion
	key_version keyAlias keyring keyPath keyFile tokenFile token_file token_uri tokenUrl token_url
	access_key_id accessKeyId apiKeyId api_key_id secretRef secretKeyRef secret_path tokenName
	tokenHash token_hash tokenPrefix tokenStatus tokenScope publishableKey publishable_key
	NEXT_PUBLIC_KEY siteKey site_key verificationKey registrationToken deviceToken pushToken
	device_token lockToken leaseToken pollToken operationToken callbackToken progressToken
	bookmarkToken checkpointToken streamToken iteratorToken versionToken receiptToken etagToken
	bookmark marker scrollId sessionHandle requestKey uniqueKey naturalKey compositeKey columnKey
	fieldKey propertyKey attributeKey labelKey metricKey eventKey jobKey taskKey runKey buildKey
	stepKey viewKey templateKey registryKey settingKey configKey optionKey categoryKey userKey
	memberKey orgKey teamKey workspaceKey tenantKey repoKey branchKey moduleKey packageKey
	versionKey releaseKey ticketKey commentKey attachmentKey pageKey postKey threadToken`

// secretNames are names whose values are secrets.
const secretNames = `apiKey api_key API_KEY apikey x-api-key X-Api-Key accessToken access_token
	ACCESS_TOKEN authToken auth_token refreshToken refresh_token bearerToken bearer_token
	sessionToken session_token idToken id_token clientSecret client_secret CLIENT_SECRET appSecret
	app_secret secretKey secret_key SECRET_KEY privateKey private_key signingKey signing_key
	signingSecret webhookSecret webhook_secret encryptionKey encryption_key masterKey master_key
	githubToken GITHUB_TOKEN github_token gitlab_token SLACK_BOT_TOKEN slackToken botToken bot_token
	personalAccessToken personal_access_token userToken user_token adminToken admin_token
	serviceToken service_token jwtSecret JWT_SECRET jwt_token cookieSecret SESSION_SECRET
	sessionSecret dbPassword DB_PASSWORD db_password password PASSWORD passwd userPassword
	adminPassword admin_password smtpPassword SMTP_PASSWORD redisPassword REDIS_PASSWORD passphrase
	sshPassphrase keyPassphrase secret SECRET credentials credential api_secret apiSecret API_SECRET
	apiToken api_token API_TOKEN OPENAI_API_KEY openaiApiKey STRIPE_SECRET_KEY stripeSecretKey
	AWS_SECRET_ACCESS_KEY awsSecretAccessKey secretAccessKey aws_session_token OPENWEATHER_KEY
	MAPS_KEY licenseKey license_key accountKey account_key storageAccountKey sharedAccessKey
	subscriptionKey Ocp-Apim-Subscription-Key serviceRoleKey service_role_key SUPABASE_SERVICE_KEY
	tokenSecret token_secret consumerSecret consumer_secret oauthToken oauth_token
	oauth_token_secret tokenValue apiKeyValue TOKEN_PROD api_key_2 deployToken deploy_token
	npmToken NPM_TOKEN pageAccessToken page_access_token nextAuthSecret NEXTAUTH_SECRET hmacKey
	hmac_secret encryptionSecret vaultToken VAULT_TOKEN unsealKey adminKey admin_api_key authKey
	auth_key authorization proxyPassword keystorePassword truststore_password pgpassword PGPASSWORD
	MYSQL_ROOT_PASSWORD POSTGRES_PASSWORD mysqlPassword authCode auth_code`

// half reports the half of a word: the tuning half or the held-out half.
func half(word string) uint64 {
	h := fnv.New32a()
	h.Write([]byte(word))
	if h.Sum32()%2 == 0 {
		return tuningSeed
	}
	return heldOutSeed
}

// TestCursorsStay gives cursors of many forms to names of cursors, in members and in text, in both
// directions. None may be changed, since the next request must repeat it.
func TestCursorsStay(t *testing.T) {
	s := newStage(t, `{}`)
	names := strings.Fields(`nextPageToken NextToken continuationToken syncToken pageToken cursor
		next_cursor next_page_token endCursor deltaToken skipToken resumeToken page_token
		NextContinuationToken nextSyncToken startPageToken after_cursor sequenceToken`)
	r := seeded(heldOutSeed)
	items, changed := 0, 0
	for _, name := range names {
		for _, form := range []string{
			"eyJhbGciOiJIUzI1NiJ9.eyJ{A40}.{w43}",
			base64.StdEncoding.EncodeToString([]byte(
				`{"lastKey":{"pk":"u1"},"api_key":"` + fill(r, "{A24}") + `"}`)),
			base64.RawURLEncoding.EncodeToString([]byte(`{"token":"` + fill(r, "{A32}") + `"}`)),
			"{A64}", "{h32}", "{UUID}",
		} {
			value := fill(r, form)
			for _, m := range []*mcp.Message{
				message(t, mcp.Request, mcp.ToServer, "tools/call", fmt.Sprintf(
					`{"name":"t","arguments":{"page":{%q:%q}}}`, name, value)),
				message(t, mcp.Response, mcp.ToClient, "tools/call", fmt.Sprintf(
					`{"structuredContent":{%q:%q}}`, name, value)),
				result(fmt.Sprintf(`{"items":[1,2],%q:%q}`, name, value)),
				result(fmt.Sprintf("{\n  %q: %q\n}", name, value)),
				result(fmt.Sprintf("items: []\n%s: %s\n", name, value)),
				result(fmt.Sprintf("GET https://example.com/x?limit=2&%s=%s", name, value)),
			} {
				items++
				if v := inspect(t, s, m); v.Action != pipeline.Allow {
					changed++
					t.Errorf("%s is changed (%v): %s", name, types(v), m.Body())
				}
			}
		}
	}
	t.Logf("cursors changed: %s", wilson(changed, items))
}

// opaqueForms are the forms of random values.
var opaqueForms = []string{"{A32}", "{h40}", "C{A43}=", "{UUID}", "{A12}-{A12}_{A12}", "{A24}"}

// TestNamesDecideAboutValues gives random values to members with names of public APIs, in both
// directions, as members and in text.
func TestNamesDecideAboutValues(t *testing.T) {
	testNames(t, benignNames, secretNames, 50, 10)
}

// testNames fails the test if, in one half of the names, more than one of wrong benign names is
// taken for a secret's, or more than one of missed secret names is not.
func testNames(t *testing.T, benign, secret string, wrong, missed int) {
	t.Helper()
	s := newStage(t, `{}`)
	for _, seed := range []uint64{tuningSeed, heldOutSeed} {
		r := seeded(seed)
		for _, c := range []struct {
			what, names string
			wantSecret  bool
		}{{"benign names taken", benign, false}, {"secret names found", secret, true}} {
			names, takenNames, items, takenItems := 0, 0, 0, 0
			for _, name := range strings.Fields(c.names) {
				if half(name) != seed {
					continue
				}
				names++
				taken := 0
				for _, form := range opaqueForms {
					value := fill(r, form)
					for _, m := range []*mcp.Message{
						message(t, mcp.Request, mcp.ToServer, "tools/call", fmt.Sprintf(
							`{"name":"t","arguments":{%q:%q}}`, name, value)),
						message(t, mcp.Response, mcp.ToClient, "tools/call", fmt.Sprintf(
							`{"structuredContent":{"page":{%q:%q}}}`, name, value)),
						result(fmt.Sprintf(`{"items": [], %q: %q}`, name, value)),
						result("items: []\n" + name + ": " + value + "\n"),
					} {
						items++
						if v := inspect(t, s, m); v.Action != pipeline.Allow {
							taken++
						}
					}
				}
				takenItems += taken
				if taken > 0 {
					takenNames++
				}
				if taken > 0 != c.wantSecret && seed == tuningSeed {
					t.Logf("%s: %s: %d of %d", c.what, name, taken, 4*len(opaqueForms))
				}
			}
			t.Logf("seed %d: %s: %s, in %d of %d messages", seed, c.what,
				wilson(takenNames, names), takenItems, items)
			if !c.wantSecret && takenNames*wrong > names ||
				c.wantSecret && (names-takenNames)*missed > names {
				t.Errorf("seed %d: %s: %d of %d", seed, c.what, takenNames, names)
			}
		}
	}
}
